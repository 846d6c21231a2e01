"""One chart outside of its page: filling the window, in a frame on another page, behind a link."""
