package httpapi

import (
	"net/http"
	"strconv"

	"ronbox/httpapi/openapi"
)

// Copy determines whether a node that does not lead may answer a route from its copy of the file.
// Only public routes may have one: such a node judges no token.
type Copy int

const (
	CopyNone Copy = iota // the leader answers
	// CopyExact is of content that its path determines: it is named by its hash, or was signed
	// once. Every node answers, and the leader does so without asking a quorum.
	CopyExact
	// CopyOutage is of content that may have changed since. A node answers while it knows no
	// leader, and the answer has AgeHeader.
	CopyOutage
)

// AgeHeader is the header of an answer that may be out of date: the seconds since the node has last
// heard the leader, as 1.250. Other answers do not have it.
const AgeHeader = "Ronbox-Age"

// ageParam describes AgeHeader.
func ageParam() openapi.Param {
	return openapi.Param{
		Name:    AgeHeader,
		Doc:     "seconds since the node has last heard the leader: no node leads, and the answer may be out of date",
		Pattern: `^\d+\.\d{3}$`,
	}
}

// mayCopy reports whether this node, which does not lead, is to look into its copy first.
func (r *Request) mayCopy() bool {
	cluster := r.server.d.Cluster
	if r.route.Copy == CopyNone || cluster.Removed() || !cluster.Copies(r.service.Name) {
		return false
	}
	r.copies = r.route.Copy == CopyExact
	if r.route.Copy == CopyOutage {
		r.age, r.copies = cluster.Outage()
	}
	return r.copies
}

// Copied reports whether the answer is looked for in the copy of a node that does not lead.
func (r *Request) Copied() bool { return r.copies }

// copyFirst answers from the copy of a node that does not lead. What is not in the copy is asked of
// the leader.
func copyFirst(s *Server, b *boundRoute, next Handler) Handler {
	if s.d.Cluster == nil {
		return next
	}
	return func(c *Request) error {
		if !c.copies {
			return next(c)
		}
		if c.route.Copy == CopyOutage {
			c.Set(AgeHeader, strconv.FormatFloat(c.age.Seconds(), 'f', 3, 64))
		}
		err := next(c)
		if err == nil || c.status != 0 || !isAbsent(b.service.classify(err).Status) {
			return err
		}
		c.dropHeaders()
		return s.forward(c)
	}
}

// isAbsent reports whether a node refuses with status because it lacks something. Other refusals
// are due to the request itself.
func isAbsent(status int) bool {
	return status == http.StatusNotFound || status == http.StatusGone || status >= http.StatusInternalServerError
}

// dropHeaders removes the headers of an answer that is not sent.
func (r *Request) dropHeaders() {
	h := r.Header()
	for name := range h {
		if !frameHeader(name) {
			delete(h, name)
		}
	}
}
