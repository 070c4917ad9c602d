"""Reports: tables, statistics, figure styles and the HTML page."""
