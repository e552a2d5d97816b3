package httpapi

import "net/http"

// getConfig serves GET /admin/v1/config.
func (s *Server) getConfig(c *call) error {
	show, err := s.d.Node.Config(c.context())
	if err != nil {
		return err
	}
	return respond(c, http.StatusOK, show)
}

// postReload serves POST /admin/v1/config/reload.
func (s *Server) postReload(c *call) error {
	done, err := s.d.Node.Reload(c.context(), c.actor, c.corrID)
	if err != nil {
		return err
	}
	return respond(c, http.StatusOK, done)
}
