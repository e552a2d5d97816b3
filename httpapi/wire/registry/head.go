package registry

import "ronbox/engines/registry/head"

// Head is HEAD of the registry: the body of GET /registry/head.
type Head = head.Head
