"""Where records are kept: one room per database, each alike. `open_store` picks by URL."""
