package httpapi

// hardHeader is one header that every answer has. Its value is shared by all answers and never changed: net/http replaces
// it, or appends to a copy.
type hardHeader struct {
	name  string
	value []string
}

func hardHeaders() []hardHeader {
	return []hardHeader{
		{"X-Content-Type-Options", one("nosniff")},
		{"X-Frame-Options", one("DENY")},
		{"Referrer-Policy", one("no-referrer")},
		{"Content-Security-Policy", one("default-src 'none'; frame-ancestors 'none'")},
	}
}

// hstsYear keeps a browser with TLS for a year.
const hstsYear = "max-age=31536000"

func one(v string) []string { return []string{v}[:1:1] }

// harden tells browsers to do nothing with an answer but read it. Nothing here is a page.
func harden(_ *Server, _ *bound, next handler) handler {
	fixed, hsts := hardHeaders(), one(hstsYear)
	return func(c *call) error {
		h := c.Header()
		for i := range fixed {
			h[fixed[i].name] = fixed[i].value
		}
		if c.live.hsts && c.r.TLS != nil {
			h["Strict-Transport-Security"] = hsts
		}
		return next(c)
	}
}
