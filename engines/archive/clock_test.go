package archive

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/engines/archive/history"
	"ronbox/engines/archive/target"
)

// The latest moment is that of the line that was written last, also if a clock ran ahead before: that
// of the stamps, and that of a target on the same machine.
func TestLatestAfterClockAhead(t *testing.T) {
	for _, both := range []bool{false, true} {
		n := made(t)
		n.pump()
		n.put("a", 1)
		n.pump()
		n.stop()
		n.ahead = 365 * day
		n.boot()
		n.put("b", 1)
		n.pump()
		if both {
			n.dated("log/"+objectName(1), func(at time.Time) time.Time { return at.Add(n.ahead) })
		}
		n.stop()
		n.ahead = 0
		n.rewinds(1)
		n.put("c", 1)
		n.pump()
		out, err := n.history().Restore(t.Context(), t.TempDir(), history.Moment{Latest: true}, n.options())
		if err != nil || out.Line != n.arc.Status().Line || out.Manifest.StateHash.String() != n.hash() {
			t.Errorf("%+v, %v", out, err)
		}
		n.stop()
	}
}

// The age of a newest moment that is ahead of the clock is not known.
func TestRehearsalAfterClockAhead(t *testing.T) {
	n := made(t)
	n.pump()
	n.stop()
	n.ahead = 365 * day
	n.boot()
	n.put("a", 1)
	n.pump()
	n.stop()
	for now, want := range map[time.Time]bool{time.Now(): true, time.Now().Add(n.ahead): false} {
		d, err := n.history().Rehearse(t.Context(), t.TempDir(), now, n.options())
		if ahead := d.Ahead > 364*day; err != nil || ahead != want || d.Behind < 0 || d.Behind > time.Hour {
			t.Errorf("%+v, %v", d, err)
		}
	}
}

// A line whose stamps are ahead of the times at which its objects were made says so, whether it ends
// with a base or with its log.
func TestSpanAhead(t *testing.T) {
	for _, based := range []bool{true, false} {
		n := made(t)
		n.pump()
		n.stop()
		n.ahead = 365 * day
		n.boot()
		n.put("a", 1)
		n.arc.asked.Store(based)
		n.pump()
		n.stop()
		n.ahead = 0
		n.boot()
		n.put("b", 1)
		n.arc.asked.Store(based)
		n.pump()
		a := n.history()
		for _, l := range a.Lines {
			s, err := a.Span(t.Context(), l)
			if err != nil || s == nil || s.Ahead < 364*day {
				t.Errorf("based %v: %+v, %v", based, s, err)
			}
		}
		n.stop()
	}
}

// Prune goes by the order of objects. A clock that runs ahead makes nothing old, and no time of an
// object leaves a gap.
func TestPruneAfterClockAhead(t *testing.T) {
	n := made(t)
	for i := range 5 { // a base after each command, a day apart
		n.put("a", i)
		n.arc.asked.Store(true)
		n.pump()
		n.aged(day)
	}
	n.stop()
	ahead := func(at time.Time) time.Time { return at.Add(365 * day) }
	behind := func(time.Time) time.Time { return time.Unix(1000, 0) }
	base := func(seq uint64) string { return "base/" + objectName(seq) + "/00000" }
	log := func(seq uint64) string { return "log/" + objectName(seq) }
	for _, tt := range []struct {
		what  string
		text  string
		to    func(time.Time) time.Time
		now   time.Time
		keep  time.Duration
		age   time.Duration // of the objects of text, before and afterwards
		wants []string
	}{
		{what: "whoever prunes", now: time.Now().Add(365 * day), keep: 5 * day / 2,
			wants: []string{base(1), log(0), log(1)}},
		{what: "the third base", text: base(3), age: 3 * day, to: ahead, now: time.Now(),
			wants: []string{base(1), base(2), base(3), log(0), log(1), log(2), log(3)}},
		{what: "a log object", text: log(1), age: 4 * day, to: ahead, now: time.Now(), keep: 5 * day / 2,
			wants: []string{base(1), base(2), log(0), log(1), log(2)}},
		{what: "a clock that is behind", text: base(3), age: 3 * day, to: behind, now: time.Now(), keep: 100 * day},
	} {
		if tt.to != nil {
			n.dated(tt.text, tt.to)
		}
		var got []string
		_, _, err := n.history().Prune(t.Context(), history.Pruning{
			Keep: tt.keep, Now: tt.now, DryRun: true,
			Deleted: func(i target.Item) { got = append(got, i.Name[54:]) },
		})
		if err != nil || !slices.Equal(got, tt.wants) {
			t.Errorf("%s: %q, want %q, %v", tt.what, got, tt.wants, err)
		}
		if tt.to != nil {
			n.dated(tt.text, func(time.Time) time.Time { return time.Now().Add(-tt.age) })
		}
	}
}

// Whatever objects were created while a clock ran ahead, prune deletes what is before the newest base
// that is old enough and has a time, and keeps the two newest.
func TestPruneKeepsWhatIsNeeded(t *testing.T) {
	n := made(t)
	const bases = 7
	for i := range bases { // a base after each command
		n.put("a", i)
		n.arc.asked.Store(true)
		n.pump()
	}
	n.stop()
	rapid.Check(t, func(rt *rapid.T) {
		now := time.Now()
		made := func(seq uint64) time.Time { return now.Add(-time.Duration(bases-seq) * day) }
		ahead := map[string]bool{}
		for _, name := range n.objects() {
			seq, err := strconv.ParseUint(strings.Split(name, "/")[3], 16, 64)
			if err != nil {
				rt.Fatal(err)
			}
			at := made(seq)
			if ahead[name] = rapid.IntRange(0, 3).Draw(rt, "ahead") == 0; ahead[name] {
				at = now.Add(time.Duration(rapid.IntRange(2, 9000).Draw(rt, "hours")) * time.Hour)
			}
			n.dated(name, func(time.Time) time.Time { return at })
		}
		keep := time.Duration(rapid.IntRange(0, 8*24).Draw(rt, "keep")) * time.Hour
		gone := map[string]bool{}
		_, _, err := n.history().Prune(t.Context(), history.Pruning{
			Keep: keep, Now: now.Add(time.Minute), DryRun: true, Deleted: func(i target.Item) { gone[i.Name] = true },
		})
		if err != nil {
			rt.Fatal(err)
		}
		l := n.history().Lines[0]
		from := -1 // the newest base that is old enough and has a time
		for i, b := range l.Bases[:bases-1] {
			if !ahead[b.Parts[0].Name] && !made(b.Seq).After(now.Add(time.Minute-keep)) {
				from = i
			}
		}
		for i, b := range l.Bases {
			if gone[b.Parts[0].Name] != (i < from) {
				rt.Errorf("keep %s: base %d of %d", keep, i, from)
			}
		}
		for i, o := range l.Logs {
			before := from >= 0 && i+1 < len(l.Logs) && l.Logs[i+1].Seq <= l.Bases[from].Seq
			if gone[o.Name] != before {
				rt.Errorf("keep %s: log object %d, from base %d on", keep, i, from)
			}
		}
	})
}

// sends sends what is packed, without a base.
func (n *node) sends() {
	n.t.Helper()
	n.arc.rotated = time.Time{}
	if err := n.arc.pack(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.arc.send(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

// A line without a complete base is nothing wrong if it has just begun, or if a prune has left it.
func TestLineWithoutBase(t *testing.T) {
	n := made(t)
	n.put("a", 1)
	n.sends()
	findings := func(what string, wants, notes int) {
		t.Helper()
		c, err := n.history().Verify(t.Context(), n.options())
		if err != nil || len(c.Findings) != wants || len(c.Notes) != notes {
			t.Errorf("%s: %+v, %v", what, c, err)
		}
	}
	findings("the only line", 1, 0)
	n.pump()
	findings("with a base", 0, 0)
	n.stop()
	was := n.arc.Status().Line
	n.rewinds(1)
	n.put("b", 1)
	n.sends()
	findings("a line that has just begun", 0, 1)
	out, err := n.history().Restore(t.Context(), t.TempDir(), history.Moment{Latest: true}, n.options())
	if err != nil || out.Line != was || out.Newer != n.arc.Status().Line {
		t.Errorf("%+v, %v", out, err)
	}
	n.aged(4 * day)
	findings("four days later", 1, 0)
	n.pump()
	for _, name := range n.objects() {
		if strings.Contains(name, was+"/base/") {
			if err := n.target().Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	findings("what a prune has left", 0, 1)
	n.stop()
}

// Of an archive of several nodes, one must be named.
func TestSeveralNodes(t *testing.T) {
	n, k := made(t), made(t)
	k.stop()
	k.cfg.Target, k.cfg.Recipients = n.cfg.Target, n.cfg.Recipients
	k.boot()
	all := []*node{n, k}
	for i, of := range all {
		of.pump()
		for range i + 1 {
			of.put("a", i+1)
		}
		of.pump()
	}
	for _, m := range []history.Moment{{Latest: true}, {Seq: 1}, {Seq: 2}} { // one of them has command 2
		_, err := n.history().Restore(t.Context(), t.TempDir(), m, n.options())
		var several *history.NodesError
		if !errors.As(err, &several) || !errors.Is(err, history.ErrNodes) || len(several.Nodes) != 2 {
			t.Errorf("%+v: %v", m, err)
		}
	}
	for _, of := range all {
		one := n.history().Of(of.store.Info().NodeID)
		c, err := one.Verify(t.Context(), n.options())
		if err != nil || c.Lines != 1 || len(c.Findings) > 0 {
			t.Errorf("%+v, %v", c, err)
		}
		out, err := one.Restore(t.Context(), t.TempDir(), history.Moment{Latest: true}, n.options())
		if err != nil || out.Manifest.StateHash.String() != of.hash() {
			t.Errorf("%+v, %v", out, err)
		}
		of.stop()
	}
}
