"""`python -m stream_agg` is `stream-agg`."""

from stream_agg.cli import main

if __name__ == "__main__":
    main()
