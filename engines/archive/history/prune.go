package history

import (
	"context"
	"slices"
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

// Prune deletes what is older than the newest complete base from before the time to keep, of each
// line, and lines whose last object is older, if the current line has a complete base. The two
// newest complete bases of a node, and everything after them, stay.
func (a *Archive) Prune(ctx context.Context, p Pruning) (objects int, bytes int64, err error) {
	for _, node := range a.nodes() {
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

// nodes returns the nodes of the archive.
func (a *Archive) nodes() (all []string) {
	for _, l := range a.Lines {
		if !slices.Contains(all, l.Node) {
			all = append(all, l.Node)
		}
	}
	return all
}

// held is a complete base of a node.
type held struct {
	line *Line
	base *Base
}

// surplus returns what is to be deleted of a node, in an order that leaves what remains usable.
func (a *Archive) surplus(ctx context.Context, node string, p Pruning) (items []target.Item, err error) {
	var lines []*Line
	var bases []held
	for _, l := range a.Lines {
		if l.Node != node {
			continue
		}
		lines = append(lines, l)
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
	slices.SortStableFunc(bases, func(x, y held) int { return x.base.Newest().Compare(y.base.Newest()) })
	if len(bases) < 2 {
		return nil, nil
	}
	floor, oldest := bases[:len(bases)-2], p.Now.Add(-p.Keep)
	current := p.current(node, lines)
	for _, l := range lines {
		safe := slices.ContainsFunc(bases[len(floor):], func(h held) bool { return h.line == l })
		based := slices.ContainsFunc(bases, func(h held) bool { return h.line == current })
		if l != current && !safe && based && l.Newest().Before(oldest) {
			items = append(items, l.items()...)
			continue
		}
		items = append(items, l.before(l.keep(bases, len(floor), oldest), oldest)...)
	}
	return items, nil
}

// current returns the line of a node that is being written.
func (p Pruning) current(node string, lines []*Line) (newest *Line) {
	for _, l := range lines {
		if l.ID == p.Current[node] {
			return l
		}
		if newest == nil || l.Newest().After(newest.Newest()) {
			newest = l
		}
	}
	return newest
}

// keep returns the newest complete base of the line from before a time, or nil. bases are those of
// the node, oldest first, of which those from floor on stay.
func (l *Line) keep(bases []held, floor int, oldest time.Time) (b *Base) {
	for i, h := range bases {
		if h.line == l && (b == nil || i <= floor && !h.base.Newest().After(oldest)) {
			b = h.base
		}
	}
	return b
}

// before returns the objects before a base that stays, and incomplete bases older than a time.
func (l *Line) before(b *Base, oldest time.Time) (items []target.Item) {
	if b == nil {
		return nil
	}
	for i := range l.Bases {
		if l.Bases[i].Seq < b.Seq && l.Bases[i].Newest().Before(oldest) {
			items = append(items, l.Bases[i].items()...)
		}
	}
	for i, o := range l.Logs {
		if i+1 < len(l.Logs) && l.Logs[i+1].Seq <= b.Seq && o.At.Before(oldest) {
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
