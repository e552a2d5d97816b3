package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// A log of large entries stays within its bound on every member, and no member needs the file.
func TestLogIsBounded(t *testing.T) {
	const segment = 256 << 10
	bubble(t, 24, func(t *testing.T, w *world) {
		w.change = func(n *Node) {
			n.segment = segment
			n.mostLog = 4 * segment
		}
		w.three()
		large := strings.Repeat("v", segment/16)
		for i := range 200 {
			w.leader().mustPut(fmt.Sprint("k", i), large)
		}
		for _, m := range w.members {
			n := m.now().node
			w.until("a shorter log at "+m.id, func() bool {
				entries, size, err := n.logSize()
				if err != nil {
					t.Fatal(err)
				}
				return size <= n.mostLog && entries < 50
			})
			w.until("the usual rules at "+m.id, func() bool { return n.raft.ReloadableConfig() == n.usual })
			if first, err := n.latch.FirstIndex(); err != nil || first > n.store.Applied().Index {
				t.Errorf("%s: the log begins at %d, the file is at %d, %v", m.id, first, n.store.Applied().Index, err)
			}
			if m.boots() != 1 {
				t.Errorf("%s: %d lives", m.id, m.boots())
			}
		}
		w.leader().mustPut("after", "1")
		w.equal()
	})
}

func TestBounded(t *testing.T) {
	usual := raft.ReloadableConfig{TrailingLogs: keptEntries, SnapshotThreshold: 8192}
	for _, tt := range []struct {
		name      string
		entries   uint64
		size      int64
		kept      uint64
		threshold uint64
	}{
		{"empty", 0, 0, keptEntries, 8192},
		{"at its bound", 20000, 256 << 20, keptEntries, 8192},
		{"large entries", 320, 320 << 20, 85, sentEntries},
		{"a large log of an earlier release", 10240, 10 << 30, 85, sentEntries},
		{"the largest entries", 20, 320 << 20, sentEntries, sentEntries},
		{"many small entries", 1e6, 320 << 20, keptEntries, sentEntries},
	} {
		got := bounded(usual, tt.entries, tt.size, 256<<20)
		if got.TrailingLogs != tt.kept || got.SnapshotThreshold != tt.threshold {
			t.Errorf("%s: keeps %d after %d entries", tt.name, got.TrailingLogs, got.SnapshotThreshold)
		}
	}
}
