"""``python -m koala`` is the same as the ``koala`` command."""

from koala.cli import main

if __name__ == "__main__":
    main()
