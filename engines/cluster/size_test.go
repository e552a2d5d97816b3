package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
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

// The place of a leader moves with its groups only. Until the next one, raft cannot truncate the log,
// and tries again and again: that is no error.
func TestLogOfIdleLeader(t *testing.T) {
	const segment = 256 << 10
	bubble(t, 26, func(t *testing.T, w *world) {
		lines := make(lineTo, 1000)
		w.log = hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: lines})
		w.change = func(n *Node) {
			n.segment = segment
			n.mostLog = 4 * segment
		}
		m := w.found("a").on()
		w.leader()
		n := m.now().node
		large := strings.Repeat("v", segment/16)
		for i := 0; ; i++ {
			m.mustPut(fmt.Sprint("k", i), large)
			if _, size, err := n.logSize(); err != nil || size > n.mostLog {
				break
			}
		}
		if err := n.Admit(t.Context(), "b", "b:1", true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		for range len(lines) {
			if line := <-lines; strings.Contains(line, "[ERROR]") {
				t.Error(line)
			}
		}
	})
}

// A member that is many large entries behind catches up over a slow network: no message takes longer
// than its time limit.
func TestLargeEntriesOnSlowNetwork(t *testing.T) {
	bubble(t, 33, func(t *testing.T, w *world) {
		w.three()
		lead := w.leader()
		late := w.others(lead)[0]
		late.stop()
		for i := range sentEntries {
			lead.mustPut(fmt.Sprint("large", i), strings.Repeat("x", 900<<10))
		}
		w.mesh.mu.Lock()
		w.mesh.rate = 2 << 20
		w.mesh.mu.Unlock()
		late.on()
		last := fmt.Sprint("large", sentEntries-1)
		w.until("it has caught up", func() bool { return late.get(last) != "" })
	})
}
