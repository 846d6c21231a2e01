"""Workers, which compute tasks in other processes and on other machines."""
