package httpapi

import (
	"net/http"
	"slices"
	"time"
)

const (
	maxProfileSeconds = 300
	profileSeconds    = 10 // of the profiles that run for a while, unless told
)

// profileNames are what GET /admin/v1/debug/profile/:name gives.
func profileNames() []string {
	return []string{"heap", "allocs", "goroutine", "block", "mutex", "threadcreate", "profile", "trace", "flight"}
}

// getProfile serves GET /admin/v1/debug/profile/:name?seconds=, in chunks as they come. HEAD runs none.
func (s *Server) getProfile(c *call) error {
	name := c.param(paramProfile)
	if !slices.Contains(profileNames(), name) {
		return errNoRoute
	}
	seconds, err := c.number("seconds", profileSeconds, maxProfileSeconds)
	if err != nil {
		return err
	}
	c.set("Content-Type", typeBytes)
	c.set("Cache-Control", cacheNone)
	if c.r.Method == http.MethodHead {
		c.WriteHeader(http.StatusOK)
		return nil
	}
	return s.d.Node.Profile(c.context(), name, time.Duration(seconds)*time.Second, newRolling(c))
}
