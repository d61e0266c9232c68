-- Whether this session listens to the channel. Asked on the session itself: nobody else can know.
SELECT channel FROM pg_listening_channels() AS channel WHERE channel = {channel}
