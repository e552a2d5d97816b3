package bbolt

type DB struct{}

func (*DB) Begin(writable bool) (*Tx, error) { return &Tx{}, nil }

type Tx struct{}

func (*Tx) ID() int { return 0 }
