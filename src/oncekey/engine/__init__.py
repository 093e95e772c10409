"""Where the rules meet a store: drivers, combiners, lease renewal, waiting, and the two front doors."""
