"""The pages, one thin file each; Streamlit runs them as scripts."""
