package consumer

import (
	"errors"
	"fmt"
	"io"

	"github.com/IBM/sarama"
)

// explainLogin returns err with a reason, if no broker could be used because client and listener differ in how clients log in.
// sarama's client drops what a broker answers to a login that it does not take: then one of the addresses is asked once more.
// That blocks for as long as config allows, and until the dialer of config ends.
func explainLogin(err error, addresses []string, config *sarama.Config) error {
	if !errors.Is(err, sarama.ErrOutOfBrokers) || len(addresses) == 0 {
		return err
	}
	sasl := &config.Net.SASL
	if !sasl.Enable {
		if errors.Is(err, io.EOF) {
			ask := "does it expect SASL? Config.Net.SASL.Enable is not set"
			if !config.Net.TLS.Enable {
				ask = "does it expect SASL, or TLS? Config.Net has neither"
			}
			return fmt.Errorf("%w: a broker of %.200q closed the connection at the first question: %s", err, addresses, ask)
		}
		return err
	}
	if err.Error() != sarama.ErrOutOfBrokers.Error() {
		return err // has its reason
	}
	broker := sarama.NewBroker(addresses[0])
	if opened := broker.Open(config); opened != nil {
		return err
	}
	_, cause := broker.Connected()
	_ = broker.Close() // of one that is not connected, it is an error
	switch {
	case errors.Is(cause, sarama.ErrIllegalSASLState):
		return fmt.Errorf("%w: %.100q does not expect SASL, and Config.Net.SASL.Enable is set: is it the port of a listener without SASL? (%w)", err, addresses[0], cause)
	case errors.Is(cause, sarama.ErrUnsupportedSASLMechanism):
		return fmt.Errorf("%w: %.100q does not offer the SASL mechanism %.50q of Config.Net.SASL.Mechanism (%w)", err, addresses[0], sasl.Mechanism, cause)
	case cause != nil:
		return fmt.Errorf("%w: %w", err, cause)
	default:
		return err
	}
}
