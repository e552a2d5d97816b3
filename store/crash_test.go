package store

const childEnv = "RONBOX_STORE_CHILD"

func child() int { return 0 }
