package store

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// subOp is one change of a sub-bucket; Drop takes the whole of it.
type subOp struct {
	Sub, Key, Value string
	Delete, Drop    bool
}

// subCommand makes its changes in order, and refuses or panics after them.
type subCommand struct {
	Ops    []subOp
	Refuse bool
}

func (subCommand) Kind() string { return "test.subs/1" }

func (c subCommand) Apply(_ Reader, _ Stamp, w *Writes) (int, error) {
	for _, op := range c.Ops {
		sub := testSubs.Sub(op.Sub)
		switch {
		case op.Drop:
			w.Drop(sub)
		case op.Delete:
			w.Delete(sub, []byte(op.Key))
		default:
			w.Put(sub, []byte(op.Key), []byte(op.Value))
		}
	}
	if c.Refuse {
		return 0, errRefused
	}
	return len(c.Ops), nil
}

// subModel holds the expected sub-buckets. An empty sub-bucket may exist or not.
type subModel map[string]map[string]string

func (m subModel) apply(ops []subOp) {
	for _, op := range ops {
		switch {
		case op.Drop:
			delete(m, op.Sub)
		case op.Delete:
			delete(m[op.Sub], op.Key)
		default:
			if m[op.Sub] == nil {
				m[op.Sub] = map[string]string{}
			}
			m[op.Sub][op.Key] = op.Value
		}
	}
}

func (m subModel) trim() subModel {
	out := subModel{}
	for name, rows := range m {
		if len(rows) > 0 {
			out[name] = rows
		}
	}
	return out
}

func subRows(r Reader) subModel {
	out := subModel{}
	for sub := range Subs(r, testSubs) {
		for k, v := range r.Range(sub, nil, nil) {
			if out[sub.Name] == nil {
				out[sub.Name] = map[string]string{}
			}
			out[sub.Name][string(k)] = string(v)
		}
	}
	return out
}

// Sub-buckets are maps of maps, whatever is put, deleted and dropped in one command or in one
// transaction, and a refused command leaves none.
func TestSubsAreMaps(t *testing.T) {
	name := rapid.SampledFrom([]string{"a", "b", "b\x00c"})
	op := rapid.Custom(func(t *rapid.T) subOp {
		o := subOp{Sub: name.Draw(t, "sub"), Key: rapid.SampledFrom([]string{"k", "l", "m"}).Draw(t, "key")}
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0:
			o.Drop = true
		case 1:
			o.Delete = true
		default:
			o.Value = rapid.SampledFrom([]string{"", "v", strings.Repeat("w", 3000)}).Draw(t, "value")
		}
		return o
	})
	command := rapid.Custom(func(t *rapid.T) subCommand {
		return subCommand{
			Ops:    rapid.SliceOfN(op, 0, 8).Draw(t, "ops"),
			Refuse: rapid.IntRange(0, 4).Draw(t, "refuse") == 0,
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		c, err := NewScratch(day, testSubs)
		if err != nil {
			t.Fatal(err)
		}
		want := subModel{}
		for _, cmd := range rapid.SliceOfN(command, 0, 12).Draw(t, "commands") {
			if _, err := Try(c, cmd); err == nil {
				want.apply(cmd.Ops)
			} else if !errors.Is(err, errRefused) {
				t.Fatal(err)
			}
			if got := subRows(c.Reader()); !maps.EqualFunc(got, want.trim(), maps.Equal) {
				t.Fatalf("holds %v, want %v", got, want)
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// What lies in sub-buckets is in the state hash, the counts, a snapshot, an export, and outlives a
// compaction.
func TestSubsAreState(t *testing.T) {
	path := newFile(t)
	r := open(t, path)
	mustCommit(r, put{Key: "k", Value: "v"})
	empty := r.hashAll()
	mustCommit(
		r,
		subCommand{
			Ops: []subOp{{Sub: "a", Key: "k", Value: "v"}, {Sub: "b", Key: "k", Value: "v"}, {Sub: "b", Key: "l"}},
		},
	)
	full := r.hashAll()
	mustCommit(r, subCommand{Ops: []subOp{{Sub: "b", Drop: true}}})
	part := r.hashAll()
	mustCommit(r, subCommand{Ops: []subOp{{Sub: "b", Key: "k", Value: "v"}, {Sub: "b", Key: "l"}}})
	if again := r.hashAll(); empty == full || full == part || empty == part || again != full {
		t.Errorf("hashes %s, %s, %s, %s", empty, full, part, again)
	}
	for _, compact := range []bool{false, true} {
		m, err := r.Snapshot(t.Context(), t.TempDir(), SnapshotOptions{Compact: compact}, nil)
		if err != nil || m.Buckets[testSubs.Name] != 3 || m.StateHash.String() != full {
			t.Errorf("%+v, %v; want state %s", m, err, full)
		}
	}
	st, err := r.Stats(t.Context())
	i := slices.IndexFunc(st.Buckets, func(b BucketStats) bool { return b.Name == testSubs.Name })
	if err != nil || i < 0 || st.Buckets[i].Rows != 3 {
		t.Errorf("%+v, %v", st.Buckets, err)
	}
	r.stop()
	done, err := Compact(t.Context(), path, nil)
	if err != nil || done.StateHash.String() != full {
		t.Errorf("%+v, %v", done, err)
	}
	var text bytes.Buffer
	if _, err := Export(t.Context(), path, &text, nil); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`{"bucket":"test/subs","sub":"61","key":"6b","value":"dg=="}`, `{"bucket":"test/subs","sub":"62","key":"6c"}`,
	} {
		if strings.Count(text.String(), want+"\n") != 1 {
			t.Errorf("the export has no line %s", want)
		}
	}
}

func (r *rig) hashAll() (hash string) {
	r.t.Helper()
	if err := r.View(r.t.Context(), func(rd Reader) error {
		hash = StateHash(rd, []*Bucket{testRows, testLog, testSubs, otherRows}).String()
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return hash
}

// What is no use of sub-buckets is the command's bug, and refuses it alone; other engines' are out
// of reach.
func TestSubsMisused(t *testing.T) {
	r := open(t, newFile(t))
	for name, fn := range map[string]func(w *Writes){
		"a row beside sub-buckets": func(w *Writes) { w.Put(testSubs, []byte("k"), nil) },
		"a delete beside them":     func(w *Writes) { w.Delete(testSubs, []byte("k")) },
		"dropping a bucket":        func(w *Writes) { w.Drop(testRows) },
		"a sub-bucket of rows":     func(w *Writes) { w.Put(testRows.Sub("a"), []byte("k"), nil) },
		"a sub of a sub":           func(w *Writes) { testSubs.Sub("a").Sub("b") },
		"a name too long":          func(w *Writes) { testSubs.Sub(strings.Repeat("n", MaxKey+1)) },
		"no name":                  func(w *Writes) { testSubs.Sub("") },
	} {
		_, err := Commit(
			t.Context(),
			r.Store,
			Work,
			do[int]{"test.do/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
				fn(w)
				return 0, nil
			}},
		)
		if !errors.Is(err, ErrInternal) {
			t.Errorf("%s: %v", name, err)
		}
	}
	foreign := do[int]{"other.do/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
		w.Drop(testSubs.Sub("a"))
		return 0, nil
	}}
	if _, err := Commit(t.Context(), r.Store, Work, foreign); !errors.Is(err, ErrInternal) {
		t.Errorf("another engine's: %v", err)
	}
	r.stop()
}

// A dropped sub-bucket gives its pages back, and an abandoned transaction brings it back whole.
func TestDropGivesPagesBack(t *testing.T) {
	r := open(t, newFile(t))
	var ops []subOp
	for i := range 500 {
		ops = append(ops, subOp{Sub: "a", Key: fmt.Sprintf("%04d", i), Value: strings.Repeat("v", 1000)})
	}
	mustCommit(r, subCommand{Ops: ops})
	mustCommit(r, put{Key: "k"})
	before := r.pages().free
	mustCommit(r, subCommand{Ops: []subOp{{Sub: "a", Drop: true}}})
	mustCommit(r, put{Key: "k"})
	mustCommit(r, put{Key: "k"})
	if got := r.pages().free; got < before+100 {
		t.Errorf("%d pages free, %d before the drop", got, before)
	}
	r.stop()
}
