"""Lists kept up to date by watches."""
