"""Results: rows in a file, their means, and what others have published.

Reading order: `results_store` (the SQLite file), `results_csv` (its rows as text), `summaries` (means, errors, times),
`published` (numbers of others), `tables` (both beside each other), `results_query` (what figures ask for).
"""
