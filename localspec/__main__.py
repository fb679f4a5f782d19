"""`python -m localspec`."""

if __name__ == "__main__":
    try:
        from localspec.cli import main

        main()
    except KeyboardInterrupt:  # main itself lets none out
        raise SystemExit(130) from None
