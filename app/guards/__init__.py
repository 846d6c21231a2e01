"""What the server refuses before Streamlit sees it: foreign names, files that it has no room for, harmful messages."""
