package site

// The beginning and the end of every manifest.
const (
	Head = head
	Tail = tail
)
