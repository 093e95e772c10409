"""Events turned into figures. A sink is given to an engine; what it counts is read here."""
