package server

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"ronbox/appliance/flow"
	nodeapi "ronbox/httpapi/wire/node"
)

// endingsOf returns how the work of every service and kind ended since the drain began: tasks and
// requests. With cut, the work that still runs counts as aborted.
func (n *Node) endingsOf(cut bool) []flow.Ending {
	all := append(n.sup.Endings(), n.server.Endings(cut)...)
	if cut {
		all = append(all, n.hanging()...)
	}
	slices.SortFunc(all, func(a, b flow.Ending) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Kind, b.Kind))
	})
	return all
}

// hanging returns the background tasks of the node that have not returned. They are cancelled with
// the others, but no drain waits for them.
func (n *Node) hanging() (out []flow.Ending) {
	tasks := n.tasks()
	for _, s := range n.sup.Tasks() {
		background := func(t flow.Task) bool { return t.Background && t.Service == s.Service && t.Name == s.Task }
		if s.State != flow.LifeDone && slices.ContainsFunc(tasks, background) {
			out = append(out, flow.Ending{Service: s.Service, Kind: s.Task, Aborted: 1})
		}
	}
	return out
}

// perService returns a text of the counts of each service, as in "checkpointor: finished 1; pruner:
// cancelled 1".
func perService(all []flow.Ending) map[string]string {
	out := map[string]string{}
	for _, e := range all {
		var parts []string
		for _, part := range []struct {
			word  string
			count int
		}{{"finished", e.Finished}, {"cancelled", e.Cancelled}, {"aborted", e.Aborted}} {
			if part.count > 0 {
				parts = append(parts, fmt.Sprintf("%s %d", part.word, part.count))
			}
		}
		text := e.Kind + ": " + strings.Join(parts, ", ")
		if before, ok := out[e.Service]; ok {
			text = before + "; " + text
		}
		out[e.Service] = text
	}
	return out
}

// drainLine returns the last line of the answer to a drain that waits.
func drainLine(all []flow.Ending) nodeapi.DrainLine {
	out := nodeapi.DrainLine{Draining: true, Done: true}
	for _, e := range all {
		out.Finished += e.Finished
		out.Cancelled += e.Cancelled
		out.Aborted += e.Aborted
		out.Ended = append(out.Ended, nodeapi.Ending(e))
	}
	return out
}

// Drained waits until the node has only its sockets and its file to close, and returns how the work
// ended.
func (n *Node) Drained(ctx context.Context) (nodeapi.DrainLine, error) {
	select {
	case <-n.ended:
		return n.endings, nil
	case <-n.store.Failed():
		return nodeapi.DrainLine{}, n.store.Err()
	case <-ctx.Done():
		return nodeapi.DrainLine{}, context.Cause(ctx)
	}
}

// logStopped logs the exit code and how the work ended. If work was cut off, the line names the
// services.
func (n *Node) logStopped() {
	all := n.endingsOf(true)
	sum := drainLine(all)
	fields := []any{"exit", n.state.Exit, "finished", sum.Finished, "cancelled", sum.Cancelled, "aborted", sum.Aborted,
		"ended", perService(all)}
	if sum.Aborted == 0 {
		n.log.Info("stopped", fields...)
		return
	}
	var cut []string
	for _, e := range all {
		if e.Aborted > 0 {
			cut = append(cut, e.Service+"."+e.Kind)
		}
	}
	n.log.Warn("stopped", append(fields, "cut_off", strings.Join(cut, ", "))...)
}
