"""The report: figures and tables for the notebooks, and one offline HTML file a run."""
