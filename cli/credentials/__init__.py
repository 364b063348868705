"""Logins: what each may do, made from the services' declarations, for the embedded servers and for servers of your own."""
