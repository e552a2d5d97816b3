package front

import "errors"

// TLSConfig is the section [tls].
type TLSConfig struct {
	Enabled  bool   `toml:"enabled" reload:"b"`   // TLS 1.3 on the TCP listener
	CertPath string `toml:"cert_path" reload:"r"` // PEM, the node's certificate first, then those above it
	KeyPath  string `toml:"key_path" reload:"r"`  // PEM, readable by nobody but its owner, or, if that is root, its group
}

// DefaultTLSConfig gives every default.
func DefaultTLSConfig() TLSConfig { return TLSConfig{} }

// Validate joins every fault of c. The files are judged when they are read.
func (c TLSConfig) Validate() error {
	if !c.Enabled {
		return nil
	}
	var cert, key error
	if c.CertPath == "" {
		cert = errors.New(`cert_path = "": must name a file when tls.enabled is true`)
	}
	if c.KeyPath == "" {
		key = errors.New(`key_path = "": must name a file when tls.enabled is true`)
	}
	return errors.Join(cert, key)
}
