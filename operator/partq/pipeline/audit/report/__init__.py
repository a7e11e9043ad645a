"""The report of an audit as one page of HTML, with its plots."""
