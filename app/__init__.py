"""The Streamlit app. It draws controls and shows results; everything it can do, the library can do without it."""
