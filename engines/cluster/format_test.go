package cluster

import (
	"testing"

	"ronbox/appliance/peer"
	"ronbox/store"
)

// The newest format that members agree on is that of the store.
func TestFormats(t *testing.T) {
	newest := byte(peer.ThisProgram(store.Schema).Formats[1])
	for format, known := range map[byte]bool{newest: true, newest + 1: false} {
		entry := append([]byte{format}, make([]byte, 4096)...)
		if _, ok := store.EntryNonce(entry); ok != known {
			t.Errorf("the store applies entries of format %d: %v, want %v", format, ok, known)
		}
	}
}
