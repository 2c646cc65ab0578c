"""One cycle: picture and policy in, plan out."""
