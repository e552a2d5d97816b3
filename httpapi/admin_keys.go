package httpapi

import "net/http"

// getKeys serves GET /admin/v1/keys.
func (s *Server) getKeys(c *call) error {
	list, err := s.d.Node.Keys(c.context())
	if err != nil {
		return err
	}
	return respond(c, http.StatusOK, list)
}

// postRotate serves POST /admin/v1/keys/rotate.
func (s *Server) postRotate(c *call) error {
	k, err := s.d.Node.RotateKey(c.context(), c.actor, c.corrID)
	if err != nil {
		return err
	}
	return respond(c, http.StatusCreated, k)
}

// postRetire serves POST /admin/v1/keys/:kid/retire.
func (s *Server) postRetire(c *call) error {
	k, err := s.d.Node.RetireKey(c.context(), c.actor, c.corrID, c.param(paramKid))
	if err != nil {
		return err
	}
	return respond(c, http.StatusOK, k)
}
