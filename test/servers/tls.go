package servers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TLS is a certificate authority made for a test, with the servers' certificate. Two of them don't trust each other.
type TLS struct {
	tb   testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	CAFile     string // the authority's certificate, PEM
	ServerFile string // the servers' key and certificate, PEM, for 127.0.0.1 and localhost
}

// NewTLS makes a certificate authority and a certificate for servers.
func NewTLS(tb testing.TB) *TLS {
	tb.Helper()
	a := &TLS{tb: tb, dir: tb.TempDir()}
	a.key = newKey(tb)
	a.cert = a.sign(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "kiel test authority"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}, &a.key.PublicKey)
	a.CAFile = filepath.Join(a.dir, "ca.pem")
	writeFile(tb, a.CAFile, encode("CERTIFICATE", a.cert.Raw))
	a.ServerFile = a.issue("server")
	return a
}

// Client returns the settings of a client with a certificate for the given name, or without one when the name is "".
func (a *TLS) Client(name string) *tls.Config {
	a.tb.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	config := &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if name != "" {
		path := a.ClientFile(name)
		pair, err := tls.LoadX509KeyPair(path, path)
		if err != nil {
			a.tb.Fatal(err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config
}

// ClientFile returns a file with the key and the certificate, PEM, of a client of the given name.
func (a *TLS) ClientFile(name string) string {
	a.tb.Helper()
	return a.issue(name)
}

// issue writes a file with a new key and its certificate.
func (a *TLS) issue(name string) string {
	a.tb.Helper()
	key := newKey(a.tb)
	cert := a.sign(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}, &key.PublicKey)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.tb.Fatal(err)
	}
	path := filepath.Join(a.dir, name+".pem")
	writeFile(a.tb, path, encode("PRIVATE KEY", der)+encode("CERTIFICATE", cert.Raw))
	return path
}

func (a *TLS) sign(template *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	a.tb.Helper()
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		a.tb.Fatal(err)
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Hour)
	template.NotAfter = time.Now().Add(24 * time.Hour)
	parent := a.cert
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, a.key)
	if err != nil {
		a.tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.tb.Fatal(err)
	}
	return cert
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func encode(kind string, der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

// zooKeeper returns the lines of zoo.cfg that switch TLS on.
func (a *TLS) zooKeeper() map[string]string {
	return map[string]string{
		"serverCnxnFactory":       "org.apache.zookeeper.server.NettyServerCnxnFactory",
		"authProvider.x509":       "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
		"ssl.keyStore.location":   a.ServerFile,
		"ssl.keyStore.type":       "PEM",
		"ssl.trustStore.location": a.CAFile,
		"ssl.trustStore.type":     "PEM",
		"ssl.clientAuth":          "need",
	}
}
