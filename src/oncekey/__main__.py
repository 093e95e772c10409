"""`python -m oncekey`: the same as the command `oncekey`."""

from oncekey.cli.app import main

raise SystemExit(main())
