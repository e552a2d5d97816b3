package ledger

// arena holds the bytes of a group's records until the group has ended: the store keeps what it is given that long.
type arena struct {
	chunks [][]byte
	at     int // of the chunk in use
	used   int // of that chunk
}

const (
	arenaChunk = 1 << 20 // bytes
	arenaKeep  = 8       // chunks kept from one group to the next
)

// room is an empty slice with room for n bytes, n at most arenaChunk. What is used of it is told by took.
func (a *arena) room(n int) []byte {
	if len(a.chunks) == 0 {
		a.chunks = append(a.chunks, make([]byte, arenaChunk))
	}
	if a.used+n > arenaChunk {
		a.at, a.used = a.at+1, 0
		if a.at == len(a.chunks) {
			a.chunks = append(a.chunks, make([]byte, arenaChunk))
		}
	}
	return a.chunks[a.at][a.used : a.used : a.used+n]
}

// took says how much of the last room is in use.
func (a *arena) took(n int) { a.used += n }

// reset takes everything back.
func (a *arena) reset() {
	if len(a.chunks) > arenaKeep {
		clear(a.chunks[arenaKeep:])
		a.chunks = a.chunks[:arenaKeep]
	}
	a.at, a.used = 0, 0
}
