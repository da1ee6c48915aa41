"""Where the base URL goes in LINE's SDKs: the option of each, as it is written in a bot."""


def hints(base: str) -> dict[str, str]:
    """By language; *base* is the address of the platform."""
    return {
        "Python": f'Configuration(host="{base}", access_token=…)',
        "Node": "LineBotClient.fromChannelAccessToken({"
        f' channelAccessToken, apiBaseURL: "{base}", dataApiBaseURL: "{base}" }})',
        "Java": f'MessagingApiClient.builder(token).apiEndPoint(URI.create("{base}")).build()',
        "Spring": f"line.bot.api-end-point={base}  line.bot.blob-end-point={base}",
        "Go": f'messaging_api.NewMessagingApiAPI(token, messaging_api.WithEndpoint("{base}"))',
        "PHP": f'$config->setHost("{base}");',
        "Ruby": "Line::Bot::V2::MessagingApi::ApiClient.new("
        f'channel_access_token: token, base_url: "{base}")',
    }
