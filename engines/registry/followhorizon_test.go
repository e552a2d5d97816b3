package registry_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/mod/sumdb/note"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/export"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/retain"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// prune waits until the hub has pruned all that its policy lets go, and ends its retention.
func (h *fakeHub) prune() {
	h.of.T.Helper()
	h.of.WaitFor("the hub to prune", func() bool {
		plan, _, err := h.of.Engine.Retainer().Plan(h.of.Ctx())
		return err == nil && plan.MinVersion > 1 && plan.Reason == "not_due"
	})
	swept(h.of, h.of.Engine.Head().MinVersion)
	setPolicy(h.of, retain.All, 0)
}

// newPrunedHub returns a hub of 21 versions that has pruned the older ones, but for genesis and a
// rotation of its log key.
func newPrunedHub(t testing.TB) (*fakeHub, registrytest.Signers) {
	t.Helper()
	h, s := newHub(t)
	h.add(s, 3)
	h.rotateLogKey(s)
	h.of.Stop()
	h.of.Segment = 2
	h.set(func(h *fakeHub) { h.of.Open() })
	h.of.Start()
	h.add(s, 12)
	setPolicy(h.of, retain.ByCount, 9)
	h.add(s, 4)
	h.prune()
	if first := h.of.Engine.Head().MinVersion; first != 13 {
		t.Fatalf("the hub has pruned up to version %d", first)
	}
	return h, s
}

// A follower begins at the horizon of a pruned hub, goes on from there, and is a whole copy to its
// own verifier, to a reader of its routes, and to a follower of its own.
func TestFollowerBeginsAtTheHorizon(t *testing.T) {
	t.Parallel()
	h, s := newPrunedHub(t)
	r := newFollower(t, h).Start()
	wantReached(r, h)
	h.add(s, 3)
	wantReached(r, h)
	first := h.of.Engine.Head().MinVersion
	ours, err := r.Engine.Horizon(r.Ctx())
	theirs, errTheirs := h.of.Engine.Horizon(r.Ctx())
	if err != nil || errTheirs != nil || fmt.Sprint(ours) != fmt.Sprint(theirs) || len(ours.Kept) != 2 {
		t.Errorf("horizon %+v of %+v, %v, %v", ours, theirs, err, errTheirs)
	}
	r.Stop()
	r.Open()
	r.Start()
	h.rotateLogKey(s)
	h.add(s, 1)
	wantReached(r, h)
	r.WaitFor("the deep verifier to reach HEAD",
		func() bool { return r.Engine.VerifiedTo().Load() == r.Engine.Head().Head.Version })
	if why := r.Engine.ChainError().Load(); why != nil {
		t.Error(*why)
	}
	chained := &fakeHub{of: r}
	next := newFollower(t, chained)
	if got := newRounds(next).try(t); got.State != follow.OK {
		t.Errorf("a follower of the follower: %+v", got)
	}
	wantEqual(next, h)
	for _, hub := range []*fakeHub{h, chained} {
		o := rverify.Options{Genesis: h.of.Engine.Head().GenesisB3, Seen: h.of.Engine.Pub().Latest.Load().Note}
		rep, err := follow.VerifyPublic(t.Context(), hub, o, h.of.Now())
		if err != nil || !rep.OK || rep.First != first || rep.Head != h.of.Engine.Head().Head {
			t.Errorf("by its public routes: %+v, %v, %v", rep, rep.Problem, err)
		}
	}
	r.Stop()
	log, err := export.Open(exported(r))
	if err != nil {
		t.Fatal(err)
	}
	rep, err := rverify.VerifyWhole(r.Ctx(), log, log, rverify.Options{Genesis: r.Engine.Follower().Genesis()})
	if err != nil || !rep.OK || rep.Profile != rverify.ProfileFollowed || rep.First != first {
		t.Errorf("the export: %+v, %v", rep, err)
	}
}

// A follower that has versions, but not those before the horizon of the hub, keeps what it has and
// says what to do.
func TestFollowerBehindTheHorizon(t *testing.T) {
	t.Parallel()
	h, s := newHub(t)
	h.add(s, 2)
	r := newFollower(t, h)
	f := newRounds(r)
	if got := f.try(t); got.State != follow.OK {
		t.Fatalf("%+v", got)
	}
	h.of.Stop()
	h.of.Segment = 2
	h.set(func(h *fakeHub) { h.of.Open() })
	h.of.Start()
	h.add(s, 16)
	setPolicy(h.of, retain.ByCount, 4)
	h.add(s, 4)
	h.prune()
	got := f.try(t)
	want := fmt.Sprintf("it keeps versions from %d on, and this node has 3", h.of.Engine.Head().MinVersion)
	if got.State != follow.Behind || !strings.Contains(got.Detail, want) || !strings.Contains(got.Detail, "init") {
		t.Errorf("%+v, want %s", got, want)
	}
	if raw, err := r.Engine.EntryBytes(r.Ctx(), 2); err != nil || len(raw) == 0 {
		t.Errorf("version 2: %v", err)
	}
	wantFollowed(r)
}

// What a pruned hub says of its horizon is written only if all of it holds.
func TestFollowerOfALyingPrunedHub(t *testing.T) {
	t.Parallel()
	h, _ := newPrunedHub(t)
	first := h.of.Engine.Head().MinVersion
	flip := func(raw []byte) []byte { raw[len(raw)/2] ^= 1; return raw }
	replace := func(from, to string) func([]byte) []byte {
		return func(raw []byte) []byte {
			if !bytes.Contains(raw, []byte(from)) {
				t.Errorf("%s has no %s", raw, from)
			}
			return bytes.Replace(raw, []byte(from), []byte(to), 1)
		}
	}
	for name, lie := range map[string]struct {
		call  string
		v     uint64
		wrong func([]byte) []byte
	}{
		"an entry":            {"entry", 5, flip},
		"the genesis":         {"payload", 1, flip},
		"version Min":         {"payload", first, flip},
		"a version after Min": {"entry", first + 1, flip},
		"a hash":              {"tile", 0, flip},
		"a short tile":        {"tile", 0, func(raw []byte) []byte { return raw[:len(raw)-32] }},
		"no tile":             {"tile", 0, func([]byte) []byte { return nil }},
		"a cut checkpoint":    {"checkpoint", 0, func(raw []byte) []byte { return raw[:len(raw)-9] }},
		"an item":             {"items", first, replace(`"of item2"`, `"of item3"`)},
		"no statement":        {"horizon doc", 0, replace(`"statement":"`, `"statement":"x`)},
		"another statement":   {"horizon doc", 0, replace(fmt.Sprintf("\\nmin %d", first), `\nmin 9`)},
		"a later horizon": {"horizon doc", 0, replace(fmt.Sprintf(`"min_version":%d`, first),
			fmt.Sprintf(`"min_version":%d`, first+1))},
		"one beyond the log": {"horizon doc", 0, replace(fmt.Sprintf(`"min_version":%d`, first),
			`"min_version":999`)},
		"no change of signers": {"horizon doc", 0, replace(`[1,5]`, `[1]`)},
		"none of the kept":     {"horizon doc", 0, replace(`[1,5]`, `[]`)},
		"not in order":         {"horizon doc", 0, replace(`[1,5]`, `[1,5,5]`)},
	} {
		r := newFollower(t, h)
		f := newRounds(r)
		h.set(func(h *fakeHub) {
			h.lie = func(call string, v uint64, raw []byte) []byte {
				if call == lie.call && (v == lie.v || lie.v == 0) {
					return lie.wrong(raw)
				}
				return raw
			}
		})
		if got := f.try(t); got.State != follow.Unsound && got.State != follow.Fork || got.Version != 0 {
			t.Errorf("%s: %+v", name, got)
		}
		h.set(func(h *fakeHub) { h.lie = nil })
		if got := f.try(t); got.State != follow.OK {
			t.Errorf("after %s: %+v", name, got)
		}
		wantEqual(r, h)
		r.Stop()
	}
}

// A log key that the signers have replaced before the horizon cannot say where the log begins,
// neither to a follower nor in a file.
func TestStatementOfAReplacedLogKey(t *testing.T) {
	t.Parallel()
	h, _ := newPrunedHub(t)
	at, err := h.of.Engine.Horizon(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	skey, _, err := note.GenerateKey(bytes.NewReader(bytes.Repeat([]byte{7}, 64)), registrytest.Origin) // of newLogRig
	if err != nil {
		t.Fatal(err)
	}
	old, err := checkpoint.ParseKey(skey)
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(at.Statement, "\n\n")
	forged, err := old.SignText(text + "\n")
	if err != nil {
		t.Fatal(err)
	}
	at.Statement = string(forged)
	r := newFollower(t, h)
	f := newRounds(r)
	h.set(func(h *fakeHub) {
		h.lie = func(call string, _ uint64, raw []byte) []byte {
			if call == "horizon doc" {
				raw, _ = json.Marshal(at)
			}
			return raw
		}
	})
	if got := f.try(t); got.State != follow.Unsound || got.Version != 0 {
		t.Errorf("a follower: %+v", got)
	}
	h.set(func(h *fakeHub) { h.lie = nil })
	if got := f.try(t); got.State != follow.OK {
		t.Errorf("after it: %+v", got)
	}
	if rep := h.of.VerifyFile(); !rep.OK {
		t.Errorf("the file before: %v", rep.Problem)
	}
	if _, err := store.Commit(t.Context(), h.of.Store, store.Work, otherStatement{at.MinVersion, forged}); err != nil {
		t.Fatal(err)
	}
	if rep := h.of.VerifyFile(); rep.OK {
		t.Error("the file verifies")
	}
}

// otherStatement replaces a statement of retention.
type otherStatement struct {
	min  uint64
	note []byte
}

func (otherStatement) Kind() string { return "registry.other_statement/1" }

func (c otherStatement) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	tables.Retentions.Put(w, c.min, c.note)
	return struct{}{}, nil
}

// A hub that prunes between its checkpoint and its horizon has told no lie: the statement is of more
// versions than the checkpoint.
func TestFollowerOfAHubThatPrunesMeanwhile(t *testing.T) {
	t.Parallel()
	h, _ := newPrunedHub(t)
	first, was := h.of.Engine.Head().MinVersion, []byte(nil)
	err := h.of.Engine.View(t.Context(), func(r store.Reader) error {
		note, _ := tables.Retentions.Get(r, first)
		text, _, _ := strings.Cut(string(note), "\n\n")
		said, err := checkpoint.ParseRetention(text + "\n")
		if err != nil {
			return err
		}
		for size, raw := range tables.Checkpoints.All(r) {
			if size >= first && size < said.Tree.Size {
				was = bytes.Clone(raw)
			}
		}
		return nil
	})
	if err != nil || was == nil {
		t.Fatalf("no checkpoint before the one of the statement, %v", err)
	}
	r := newFollower(t, h)
	f := newRounds(r)
	h.set(func(h *fakeHub) {
		h.lie = func(call string, _ uint64, raw []byte) []byte {
			if call == "checkpoint" {
				return was
			}
			return raw
		}
	})
	if got := f.try(t); got.State != follow.Waiting || got.Version != 0 {
		t.Errorf("%+v", got)
	}
	h.set(func(h *fakeHub) { h.lie = nil })
	if got := f.try(t); got.State != follow.OK {
		t.Errorf("after it: %+v", got)
	}
	wantEqual(r, h)
}

// A damaged row of a kept version is damage, and no word of retention.
func TestDamagedKeptVersion(t *testing.T) {
	t.Parallel()
	h, _ := newPrunedHub(t)
	if _, err := h.of.Engine.PayloadBytes(t.Context(), 2); !errors.Is(err, document.ErrPruned) {
		t.Errorf("version 2: %v", err)
	}
	flipIn(h.of, flip{bucket: tables.PayloadBucket, key: store.U64().Append(nil, 5), bit: 77})
	if _, err := h.of.Engine.PayloadBytes(t.Context(), 5); err == nil || errors.Is(err, document.ErrPruned) {
		t.Errorf("version 5: %v", err)
	}
}

// A pruned hub whose log is another one is not believed by those who know its log.
func TestFollowerOfAForkedPrunedHub(t *testing.T) {
	t.Parallel()
	h, s := newPrunedHub(t)
	other := h.fork()
	h.add(s, 2)
	r := newFollower(t, h)
	f := newRounds(r)
	if got := f.try(t); got.State != follow.OK {
		t.Fatalf("%+v", got)
	}
	other.of.Advance(time.Second)
	other.add(s, 3)
	setHub(r, other)
	if got := f.try(t); got.State != follow.Fork {
		t.Errorf("%+v", got)
	}
	wantEqual(r, h)
}

// A follower that is killed while it begins at the horizon of a pruned hub goes on from its file.
func TestKilledAtTheHorizon(t *testing.T) {
	t.Parallel()
	h, _ := newPrunedHub(t)
	heads := h.killed()
	if !heads[0] || len(heads) < 3 {
		t.Errorf("killed at versions %v only", heads)
	}
}
