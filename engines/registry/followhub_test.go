package registry_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// fakeHub is a Hub over an engine in this process. Its hooks let it fail and lie.
type fakeHub struct {
	mu   sync.Mutex
	of   *registrytest.Rig                              // guarded by mu, as the hooks are
	fail func(call string) error                        // before each call
	lie  func(call string, v uint64, raw []byte) []byte // about bytes
}

// set changes the hub.
func (h *fakeHub) set(change func(h *fakeHub)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h)
}

// call returns the engine, or the error of the hook.
func (h *fakeHub) call(name string) (*registry.Engine, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fail != nil {
		if err := h.fail(name); err != nil {
			return nil, err
		}
	}
	return h.of.Engine, nil
}

// bytes passes the result of a read through the hook.
func (h *fakeHub) bytes(call string, v uint64, read func(e *registry.Engine) ([]byte, error)) ([]byte, error) {
	e, err := h.call(call)
	if err != nil {
		return nil, err
	}
	raw, err := read(e)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil && h.lie != nil {
		raw = h.lie(call, v, bytes.Clone(raw))
	}
	return raw, err
}

func (h *fakeHub) URL() string { return "https://hub.test" }

func (h *fakeHub) Checkpoint(context.Context) ([]byte, error) {
	return h.bytes("checkpoint", 0, func(e *registry.Engine) ([]byte, error) {
		s, err := e.LatestCheckpoint()
		if err != nil {
			return nil, err
		}
		return s.Note, nil
	})
}

func (h *fakeHub) Entry(ctx context.Context, v uint64) ([]byte, error) {
	return h.bytes("entry", v, func(e *registry.Engine) ([]byte, error) { return e.EntryBytes(ctx, v) })
}

func (h *fakeHub) Payload(ctx context.Context, v uint64) ([]byte, error) {
	return h.bytes("payload", v, func(e *registry.Engine) ([]byte, error) { return e.PayloadBytes(ctx, v) })
}

func (h *fakeHub) Horizon(ctx context.Context) (out document.Horizon, err error) {
	e, err := h.call("horizon")
	if err != nil {
		return out, err
	}
	if out, err = e.Horizon(ctx); err != nil {
		return out, err
	}
	raw, err := h.bytes("horizon doc", 0, func(*registry.Engine) ([]byte, error) { return json.Marshal(out) })
	out = document.Horizon{}
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	return out, err
}

func (h *fakeHub) Items(ctx context.Context, v uint64) ([]jsontext.Value, error) {
	raw, err := h.bytes("items", v, func(e *registry.Engine) ([]byte, error) {
		d, err := e.Version(ctx, v, true)
		return d.JSON, err
	})
	var out document.Version
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	return out.Items, err
}

func (h *fakeHub) Tile(ctx context.Context, path string) ([]byte, error) {
	return h.bytes("tile", 0, func(e *registry.Engine) ([]byte, error) {
		at, width, ofEntries, err := logtree.ParsePath("tile/" + path)
		if err != nil {
			return nil, err
		}
		return e.Tile(ctx, at, width, ofEntries)
	})
}

func (h *fakeHub) Consistency(ctx context.Context, from, to uint64) (tlog.TreeProof, error) {
	e, err := h.call("consistency")
	if err != nil {
		return nil, err
	}
	p, err := e.Consistency(ctx, from, to)
	return p.Hashes, err
}

func (h *fakeHub) Hear(ctx context.Context, _ uint64, heard func(uint64)) error {
	e, err := h.call("hear")
	if err != nil {
		return err
	}
	sub := e.Subscribe("sse")
	defer sub.Close()
	heard(e.Head().Head.Version)
	for {
		ev, _, err := sub.Recv(ctx)
		if err != nil {
			return err
		}
		heard(ev.Version)
	}
}

// newHub returns a hub whose log has a genesis.
func newHub(t testing.TB) (*fakeHub, registrytest.Signers) {
	t.Helper()
	r, s := newLogRig(t)
	r.Genesis(s, "a")
	return &fakeHub{of: r}, s
}

// newFollower returns a rig of a node that follows the hub. It runs no task of the registry yet.
func newFollower(t testing.TB, h *fakeHub) *registrytest.Rig {
	t.Helper()
	dir := t.TempDir()
	r := &registrytest.Rig{
		T: t, Path: filepath.Join(dir, "ronbox.db"), KeyFile: filepath.Join(dir, "no.key"), Hub: &asked{h},
	}
	r.Config = registry.DefaultConfig()
	r.Config.Follow.URL, r.Config.Follow.Genesis = h.URL(), h.of.Engine.Head().GenesisB3.String()
	if err := r.Config.Validate(); err != nil {
		t.Fatal(err)
	}
	id, err := store.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Create(r.Path, id); err != nil {
		t.Fatal(err)
	}
	r.Open()
	t.Cleanup(r.Stop)
	return r
}

// asked is a Hub in the place of another one.
type asked struct{ follow.Hub }

// setHub makes the follower of r read from another hub. None of its calls may run.
func setHub(r *registrytest.Rig, hub follow.Hub) { r.Hub.(*asked).Hub = hub }

// rounds makes the rounds of a follower one by one.
type rounds struct{ *follow.Run }

// newRounds returns the follower of r.
func newRounds(r *registrytest.Rig) rounds {
	r.T.Helper()
	f, err := r.Engine.Follower().Begin(r.Ctx())
	if err != nil {
		r.T.Fatal(err)
	}
	return rounds{f}
}

// try makes a round and returns the state after it.
func (f rounds) try(t testing.TB) *document.FollowStatus {
	t.Helper()
	_ = f.Try(context.Background()) // the status says what it has found
	return f.Status()
}

// wantEqual demands that r has the log of the hub, in every byte that is public, and that its file
// verifies.
func wantEqual(r *registrytest.Rig, h *fakeHub) {
	r.T.Helper()
	ours, theirs := r.Engine.Head(), h.of.Engine.Head()
	if ours.Head != theirs.Head || ours.Items.Root() != theirs.Items.Root() || ours.Origin != theirs.Origin ||
		ours.Expiry != theirs.Expiry || ours.Signers.B3() != theirs.Signers.B3() ||
		ours.MinVersion != theirs.MinVersion || ours.CheckpointSize != theirs.CheckpointSize {
		r.T.Fatalf("HEAD here %+v, of the hub %+v", ours.Doc(), theirs.Doc())
	}
	if !bytes.Equal(r.Engine.Pub().Latest.Load().Note, h.of.Engine.Pub().Latest.Load().Note) {
		r.T.Error("the checkpoint is not that of the hub")
	}
	for v := max(1, ours.MinVersion); v <= ours.Head.Version; v++ {
		for _, read := range []func(e *registry.Engine) ([]byte, error){
			func(e *registry.Engine) ([]byte, error) { return e.EntryBytes(r.Ctx(), v) },
			func(e *registry.Engine) ([]byte, error) { return e.PayloadBytes(r.Ctx(), v) },
			func(e *registry.Engine) ([]byte, error) { d, err := e.Version(r.Ctx(), v, true); return d.JSON, err },
		} {
			a, errA := read(r.Engine)
			b, errB := read(h.of.Engine)
			if errA != nil || errB != nil || !bytes.Equal(a, b) {
				r.T.Fatalf("version %d differs: %v, %v", v, errA, errB)
			}
		}
	}
	wantFollowed(r)
}

// wantReached waits until r has the checkpoint and HEAD of the hub, and demands that it has the log.
func wantReached(r *registrytest.Rig, h *fakeHub) {
	r.T.Helper()
	r.WaitFor("the follower to have HEAD and its checkpoint", func() bool {
		ours, theirs := r.Engine.Pub().Latest.Load(), h.of.Engine.Pub().Latest.Load()
		sameNote := ours != nil && bytes.Equal(ours.Note, theirs.Note)
		return sameNote && r.Engine.Head().Head == h.of.Engine.Head().Head // HEAD is published after its checkpoint
	})
	wantEqual(r, h)
}

// wantFollowed demands that the file verifies in the profile of a follower.
func wantFollowed(r *registrytest.Rig) {
	r.T.Helper()
	err := r.Store.View(r.Ctx(), func(rd store.Reader) error {
		rep, err := tables.Verify(r.Ctx(), rd, rverify.Options{Genesis: r.Engine.Follower().Genesis()})
		if err == nil && (!rep.OK || rep.Profile != rverify.ProfileFollowed || rep.AuditRecords != 0) {
			err = fmt.Errorf("%+v, %w", rep, rep.Problem)
		}
		return err
	})
	if err != nil && r.Engine.Head().Head.Version > 0 {
		r.T.Errorf("the file does not verify: %v", err)
	}
}

// add commits n versions at the hub and waits until a checkpoint covers them.
func (h *fakeHub) add(s registrytest.Signers, n int) {
	h.of.T.Helper()
	for range n {
		v := h.of.Engine.Head().Head.Version + 1
		p := h.of.Propose(v, fmt.Sprint("item", v))
		h.of.Approve(p, s.Keys...)
		h.of.Commit(p)
	}
	cover(h.of)
}

// rotateLogKey gives the hub another log key, which its signers admit instead of the first.
func (h *fakeHub) rotateLogKey(s registrytest.Signers) {
	h.of.T.Helper()
	skey, vkey, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{9}, 64)), registrytest.Origin)
	if err != nil {
		h.of.T.Fatal(err)
	}
	head := h.of.Engine.Head()
	p, _ := change(h.of, head.Head.Version+1, head.Head.PayloadB3, head.Signers,
		func(n *record.SignerSet) { n.LogKeys = []string{vkey} })
	h.of.Approve(p, s.Keys...)
	h.of.Commit(p)
	h.of.Stop()
	if err := os.WriteFile(h.of.KeyFile, []byte(skey+"\n"), 0o600); err != nil {
		h.of.T.Fatal(err)
	}
	h.set(func(h *fakeHub) { h.of.Open() })
	cover(h.of.Start())
}

// fork returns a copy of the hub that goes on alone, with the same keys.
func (h *fakeHub) fork() *fakeHub {
	h.of.T.Helper()
	was := snapshot(h.of)
	was.KeyFile = filepath.Join(filepath.Dir(was.Path), "log.key")
	copyFile(h.of.T, h.of.KeyFile, was.KeyFile)
	copyFile(h.of.T, h.of.MarkFile(), was.MarkFile())
	was.Open()
	h.of.T.Cleanup(was.Stop)
	return &fakeHub{of: was.Start()}
}
