package near

import (
	"context"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
)

// Searches returns the number of running searches.
func (s *Searcher) Searches() int { return s.seeks.Len() }

// Sources returns the ids of the nodes that an object would be fetched from, in order.
func (s *Searcher) Sources(ctx context.Context, d b3.Digest, h Hint) (ids []string) {
	for n, failed := range s.sources(ctx, s.neighbors(), d, h) {
		if failed == nil {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// Fails reports whether the breaker of a node is not closed.
func (s *Searcher) Fails(id string) bool {
	return s.neighbors().byName[id].breaker.State() != flow.BreakerClosed
}

// Line identifies the line to a node with its breaker.
func (s *Searcher) Line(id string) any { return s.neighbors().byName[id].line }

// Names returns the names that a node owns.
func (s *Searcher) Names(id string) []string { return s.neighbors().byName[id].Names }

// Absent reports whether it is remembered that no node has an object.
func (s *Searcher) Absent(d b3.Digest) bool {
	_, known := s.d.Fills.Past(s.neighbors().absentKey(d))
	return known
}
