package httpapi

import (
	"net/http"
	"strconv"

	"ronbox/httpapi/wire"
)

// maxReason bounds, in bytes, what a person says of a change; it is kept on the audit chain.
const maxReason = 1024

// getNodeStatus serves GET /admin/v1/status.
func (s *Server) getNodeStatus(c *call) error { return respond(c, http.StatusOK, s.d.Node.Status()) }

// postDrain serves POST /admin/v1/drain. The node stops after this answer.
func (s *Server) postDrain(c *call) error {
	var in wire.DrainRequest
	if len(c.body) > 0 {
		if err := decode(c.body, &in); err != nil {
			return err
		}
	}
	if len(in.Reason) > maxReason {
		return &BodyError{"reason", "must be at most " + strconv.Itoa(maxReason) + " bytes"}
	}
	s.d.Node.Drain(c.actor, c.corrID, in.Reason)
	return respond(c, http.StatusAccepted, struct{}{})
}

// getTasks serves GET /admin/v1/tasks.
func (s *Server) getTasks(c *call) error { return respond(c, http.StatusOK, s.d.Node.Tasks()) }

// getQueues serves GET /admin/v1/queues.
func (s *Server) getQueues(c *call) error { return respond(c, http.StatusOK, s.d.Node.Queues()) }

// getLogLevel serves GET /admin/v1/log-level.
func (s *Server) getLogLevel(c *call) error { return respond(c, http.StatusOK, s.d.Node.LogLevel()) }

// putLogLevel serves PUT /admin/v1/log-level.
func (s *Server) putLogLevel(c *call) error {
	var in wire.LogLevel
	if err := decode(c.body, &in); err != nil {
		return err
	}
	switch in.Level {
	case "trace", "debug", "info", "warn", "error":
	default:
		return &BodyError{"level", "must be trace, debug, info, warn or error"}
	}
	set, err := s.d.Node.SetLogLevel(c.context(), c.actor, c.corrID, in)
	if err != nil {
		return err
	}
	return respond(c, http.StatusOK, set)
}
