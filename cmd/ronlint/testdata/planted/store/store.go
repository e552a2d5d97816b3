package store

type (
	Reader interface{ Get(key string) string }
	Stamp  struct{}
	Writes struct{}
)
