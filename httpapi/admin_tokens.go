package httpapi

import (
	"net/http"

	"ronbox/httpapi/wire"
)

const maxTokenPage = 1000

// getTokens serves GET /admin/v1/tokens?cursor=&limit=.
func (s *Server) getTokens(c *call) error {
	limit, err := c.number("limit", maxTokenPage, maxTokenPage)
	if err != nil {
		return err
	}
	cursor := c.query.Get("cursor")
	if cursor != "" && !isName(cursor) {
		return &QueryError{"cursor", "must be one that this list gave"}
	}
	list, err := s.d.Node.Tokens(c.context(), c.actor, cursor, int(limit))
	if err != nil {
		return err
	}
	return respond(c, http.StatusOK, list)
}

// postToken serves POST /admin/v1/tokens.
func (s *Server) postToken(c *call) error {
	var in wire.MintRequest
	if err := decode(c.body, &in); err != nil {
		return err
	}
	if len(in.Scopes) == 0 {
		return &BodyError{"scopes", "is missing"}
	}
	t, err := s.d.Node.Mint(c.context(), c.actor, c.corrID, in)
	if err != nil {
		return err
	}
	return respond(c, http.StatusCreated, t)
}

// postRevoke serves POST /admin/v1/tokens/revoke. It answers once the revocation is in force.
func (s *Server) postRevoke(c *call) error {
	var in wire.RevokeRequest
	if err := decode(c.body, &in); err != nil {
		return err
	}
	if err := oneTarget(in); err != nil {
		return err
	}
	done, err := s.d.Node.Revoke(c.context(), c.actor, c.corrID, in)
	if err != nil {
		return err
	}
	return respond(c, http.StatusOK, done)
}

// oneTarget refuses a revocation of nothing, and of two things at once.
func oneTarget(in wire.RevokeRequest) error {
	n := 0
	for _, given := range []bool{in.TID != "", in.Kid != "", in.Tenant != "", in.All} {
		if given {
			n++
		}
	}
	if n != 1 {
		return &BodyError{"", "exactly one of tid, kid, tenant and all must be given"}
	}
	return nil
}

// postVerifyToken serves POST /admin/v1/tokens/verify: what a token would allow, and every reason why not.
func (s *Server) postVerifyToken(c *call) error {
	var in wire.VerifyRequest
	if err := decode(c.body, &in); err != nil {
		return err
	}
	if in.Token == "" {
		return &BodyError{"token", "is missing"}
	}
	v, err := s.d.Node.VerifyToken(c.context(), in)
	if err != nil {
		return err
	}
	return respond(c, http.StatusOK, v)
}
