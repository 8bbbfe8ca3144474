package consumer

import (
	"fmt"
	"slices"

	"github.com/IBM/sarama"
)

// copyConfig returns a validated copy of the user's configuration, or the
// default one.
func copyConfig(user *sarama.Config) (*sarama.Config, error) {
	if user == nil {
		user = sarama.NewConfig()
		user.ClientID = "kiel"
		user.Version = sarama.V3_6_0_0
	}
	c := *user
	c.Consumer.Interceptors = slices.Clone(c.Consumer.Interceptors)
	if err := c.Validate(); err != nil {
		return nil, fmt.Errorf("option Config: %w", err)
	}
	if !c.Version.IsAtLeast(minVersion()) {
		return nil, fmt.Errorf("option Config.Version: %s is older than %s", c.Version, minVersion())
	}
	return &c, nil
}
