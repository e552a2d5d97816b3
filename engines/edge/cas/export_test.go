package cas

import "ronbox/appliance/b3"

// Path returns the path of an object.
func (d *Dir) Path(name b3.Digest) string { return d.path(name) }

// Root returns the folder of the content store.
func (d *Dir) Root() string { return d.root }
