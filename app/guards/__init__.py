"""Guards that refuse requests before Streamlit sees them: foreign host names, too large files, harmful messages."""
