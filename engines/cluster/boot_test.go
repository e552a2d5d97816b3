package cluster

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"ronbox/store"
)

// dyingWAL is a log whose writes fail from one of them on: before it, or after it is on the disk.
type dyingWAL struct {
	wal
	left  int // writes that succeed
	after bool
	died  bool
}

func (w *dyingWAL) write(do func() error) error {
	if w.left--; w.left >= 0 {
		return do()
	}
	if w.after && w.left == -1 {
		if err := do(); err != nil {
			return err
		}
	}
	w.died = true
	return errIO
}

func (w *dyingWAL) Set(key, value []byte) error {
	return w.write(func() error { return w.wal.Set(key, value) })
}

func (w *dyingWAL) SetUint64(key []byte, value uint64) error {
	return w.write(func() error { return w.wal.SetUint64(key, value) })
}

func (w *dyingWAL) DeleteRange(low, high uint64) error {
	return w.write(func() error { return w.wal.DeleteRange(low, high) })
}

// The first boot after init or install may be killed at each of its writes. The next ones go on, and
// the file is bound to its log.
func TestBootKilled(t *testing.T) {
	bubble(t, 27, func(t *testing.T, w *world) {
		lead := w.found("lead").on()
		w.leader()
		w.join(lead, "behind")
		behind := w.members["behind"]
		w.until("two voters", func() bool { return lead.now().node.Status(t.Context()).Members[1].Role == RoleVoter })
		lead.mustPut("k", "1")
		w.equal()
		if err := lead.now().node.Remove(t.Context(), behind.id); err != nil {
			t.Fatal(err)
		}
		behind.stop()
		lead.mustPut("k", "2")
		behind.receive(lead.now().node)
		fresh := w.add("fresh")
		fresh.receive(lead.now().node)
		alone := w.found("alone")
		lead.stop()
		w.members = map[string]*server{}

		for _, m := range []*server{alone, fresh, behind} {
			from := m.dir
			for k, died := 0, true; died; k++ {
				m.dir = filepath.Join(w.dir, "copy")
				if err := errors.Join(os.RemoveAll(m.dir), os.CopyFS(m.dir, os.DirFS(from))); err != nil {
					t.Fatal(err)
				}
				var log *dyingWAL
				w.change = func(n *Node) {
					n.wrap = func(inner wal) wal {
						log = &dyingWAL{wal: inner, left: k / 2, after: k%2 == 1}
						return log
					}
				}
				m.boot(t)
				died = log.died
				w.change = nil
				for range 2 {
					if err := m.boot(t); err != nil {
						t.Errorf("%s, killed at write %d: %v", m.id, k, err)
					}
				}
				ms, err := store.ReadMembership(m.path())
				if err != nil || ms.Log == nil {
					t.Errorf("%s, killed at write %d: %+v, %v", m.id, k, ms, err)
				}
			}
		}
	})
}

// boot boots the server, waits until it lives or was refused, and stops it.
func (m *server) boot(t *testing.T) error {
	t.Helper()
	m.on()
	m.w.until("a boot", func() bool { return m.now() != nil || m.refusal() != nil })
	err := m.refusal()
	m.stop()
	return err
}
