package consumer_test

import (
	"context"
	"net"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/kielgo/kiel/test/internal/bufferedconn"
)

type dialer struct{ n *kfake.VirtualNetwork }

func (d dialer) Dial(network, address string) (net.Conn, error) {
	c, err := d.n.DialContext(context.Background(), network, address)
	if err != nil {
		return nil, err
	}
	return bufferedconn.New(c, nil), nil
}
