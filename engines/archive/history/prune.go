package history

import (
	"context"
	"slices"
	"strings"
	"time"

	"ronbox/engines/archive/target"
)

// Pruning says what Prune deletes.
type Pruning struct {
	Keep    time.Duration     // every moment of this time can still be restored
	Now     time.Time         // by the clock of the target
	Current map[string]string // line of a node that is being written; else its newest line
	DryRun  bool              // delete nothing
	Deleted func(target.Item) // called for each object that is deleted, or would be; may be nil
}

// Prune deletes what is before the newest complete base from before the time to keep, of each line,
// and lines whose last object is older, if the current line has a complete base. The two newest
// complete bases of a node, and everything after them, stay, and so do all files of closed periods:
// nothing else may have their records. The order of objects is that of their lines and commands.
func (a *Archive) Prune(ctx context.Context, p Pruning) (objects int, bytes int64, err error) {
	for _, node := range a.Nodes() {
		items, err := a.surplus(ctx, node, p)
		if err != nil {
			return objects, bytes, err
		}
		for _, i := range items {
			if !p.DryRun {
				if err := a.target.Delete(ctx, i.Name); err != nil {
					return objects, bytes, err
				}
			}
			objects, bytes = objects+1, bytes+i.Bytes
			if p.Deleted != nil {
				p.Deleted(i)
			}
		}
		if !p.DryRun {
			if err := a.target.Sweep(ctx, node); err != nil {
				return objects, bytes, err
			}
		}
	}
	return objects, bytes, nil
}

// leastBases is the number of complete bases of a node that no prune deletes.
const leastBases = 2

// held is a complete base of a node.
type held struct {
	line *Line
	base *Base
}

// surplus returns what is to be deleted of a node, in an order that leaves what remains usable.
func (a *Archive) surplus(ctx context.Context, node string, p Pruning) (items []target.Item, err error) {
	lines := a.Of(node).Lines
	if len(lines) == 0 {
		return nil, nil
	}
	current := p.current(node, lines)
	slices.SortStableFunc(lines, func(x, y *Line) int { // by age, the current one last
		switch {
		case x == current:
			return 1
		case y == current:
			return -1
		}
		return x.latest(p.Now).Compare(y.latest(p.Now))
	})
	bases, err := a.bases(ctx, lines)
	if err != nil || len(bases) < leastBases {
		return nil, err
	}
	floor, oldest := len(bases)-leastBases, p.oldest(lines)
	for _, l := range lines {
		holds := func(h held) bool { return h.line == l }
		based := slices.ContainsFunc(bases, func(h held) bool { return h.line == current })
		if l != current && !slices.ContainsFunc(bases[floor:], holds) && based && l.Newest().Before(oldest) {
			items = append(items, l.items()...)
			continue
		}
		var from *Base // the newest one that leads to every moment of the time to keep
		for _, h := range bases[:floor+1] {
			if holds(h) && l.was(h.base, oldest, p.Now) {
				from = h.base
			}
		}
		items = append(items, l.before(from)...)
	}
	return items, nil
}

// bases returns the complete bases of lines.
func (a *Archive) bases(ctx context.Context, lines []*Line) (bases []held, err error) {
	for _, l := range lines {
		for i := range l.Bases {
			_, whole, err := a.whole(ctx, &l.Bases[i])
			if err != nil {
				return nil, err
			}
			if whole {
				bases = append(bases, held{l, &l.Bases[i]})
			}
		}
	}
	return bases, nil
}

// current returns the line of a node that is being written.
func (p Pruning) current(node string, lines []*Line) *Line {
	for _, l := range lines {
		if l.ID == p.Current[node] {
			return l
		}
	}
	return lines[newest(lines, p.Now)]
}

// oldest returns the begin of the time to keep. It ends shortly after the newest object at the
// latest: a clock that runs ahead makes nothing old.
func (p Pruning) oldest(lines []*Line) time.Time {
	now := time.Time{}
	for _, l := range lines {
		if at := l.Newest().Add(clockSlack); at.After(now) {
			now = at
		}
	}
	if p.Now.Before(now) {
		now = p.Now
	}
	return now.Add(-p.Keep)
}

// was reports whether a base was created before a time. It reports false if the time of the base is
// ahead of now, or earlier than that of an object before it: then its time says nothing.
func (l *Line) was(b *Base, before, now time.Time) bool {
	if b.Newest().After(now.Add(clockSlack)) {
		return false
	}
	late := func(at time.Time) bool { return at.After(before) && !at.After(now.Add(clockSlack)) }
	for i := range l.Bases {
		if l.Bases[i].Seq <= b.Seq && late(l.Bases[i].Newest()) {
			return false
		}
	}
	return !slices.ContainsFunc(l.Logs, func(o Log) bool { return o.Seq < b.Seq && late(o.At) })
}

// before returns the objects of the line that no moment from a base on needs, by their places and
// not by their times: what is left of a log has no gap.
func (l *Line) before(b *Base) (items []target.Item) {
	if b == nil {
		return nil
	}
	for i := range l.Bases {
		if l.Bases[i].Seq < b.Seq {
			items = append(items, l.Bases[i].items()...)
		}
	}
	for i, o := range l.Logs {
		if i+1 < len(l.Logs) && l.Logs[i+1].Seq <= b.Seq {
			items = append(items, o.Item)
		}
	}
	return items
}

// items returns all objects of the line: the bases first, without which its log has no use.
func (l *Line) items() (items []target.Item) {
	for i := range l.Bases {
		items = append(items, l.Bases[i].items()...)
	}
	for _, o := range l.Logs {
		items = append(items, o.Item)
	}
	return items
}

func (b *Base) items() (items []target.Item) {
	for _, p := range b.Parts {
		items = append(items, p.Item)
	}
	return items
}

// pruned reports whether an object that was listed, and is not there, was deleted by a prune since.
// It lists the line again unless an earlier call has told.
func (a *Archive) pruned(ctx context.Context, l *Line, name string) (bool, error) {
	if l.left != nil && l.left.lacksUpTo(name) {
		return true, nil
	}
	left, err := a.again(ctx, l)
	if err != nil {
		return false, err
	}
	l.left = left
	return left.lacksUpTo(name), nil
}

// lacksUpTo reports whether the line has neither an object nor those before it, in the order in
// which Prune deletes them: the bases of a line go before its log, and the last log object with the
// last base.
func (l *Line) lacksUpTo(name string) bool {
	switch {
	case strings.HasPrefix(name, l.Node+"/"+l.ID+"/base/"):
		return len(l.Bases) == 0 || name < l.Bases[0].Parts[0].Name
	case len(l.Logs) > 0:
		return name < l.Logs[0].Name
	}
	return len(l.Bases) == 0
}
