"""Read rows from files, databases and data frames."""
