"""The smallest bot in Go, Ruby, PHP and Java, on its standard library.

Run by `pytest` with the name of this file.

Not part of `make test`: their compilers and interpreters take more room than everything else.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from local_line import events
from local_line.programs import free_port

from .test_run import running

GO = r"""
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
)

type event struct {
	ReplyToken string
	Source     struct{ UserId string }
	Message    struct{ Id, Type string }
}

func call(method, url string, body []byte) []byte {
	request, _ := http.NewRequest(method, url, bytes.NewReader(body))
	request.Header.Set("Authorization", "Bearer "+os.Getenv("LINE_CHANNEL_TOKEN"))
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	answer, _ := io.ReadAll(response.Body)
	return answer
}

func answer(e event) string {
	if e.Message.Type == "image" {
		url := "https://api-data.line.me/v2/bot/message/" + e.Message.Id + "/content"
		return fmt.Sprint(len(call("GET", url, nil)))
	}
	var profile struct{ DisplayName string }
	url := "https://api.line.me/v2/bot/profile/" + e.Source.UserId
	json.Unmarshal(call("GET", url, nil), &profile)
	return "go " + profile.DisplayName
}

func main() {
	http.HandleFunc("/callback", func(_ http.ResponseWriter, r *http.Request) {
		var body struct{ Events []event }
		json.NewDecoder(r.Body).Decode(&body)
		for _, e := range body.Events {
			messages := []any{map[string]string{"type": "text", "text": answer(e)}}
			reply := map[string]any{"replyToken": e.ReplyToken, "messages": messages}
			body, _ := json.Marshal(reply)
			call("POST", "https://api.line.me/v2/bot/message/reply", body)
		}
	})
	log.Fatal(http.ListenAndServe(":"+os.Getenv("PORT"), nil))
}
"""

RUBY = r"""
require "json"
require "net/http"
require "socket"

def call(kind, url, body = nil)
  uri = URI(url)
  request = kind.new(uri, "Authorization" => "Bearer #{ENV.fetch("LINE_CHANNEL_TOKEN")}",
                          "Content-Type" => "application/json")
  request.body = body
  Net::HTTP.start(uri.host, uri.port, use_ssl: true) { |http| http.request(request).body }
end

def answer(event)
  if event["message"]["type"] == "image"
    url = "https://api-data.line.me/v2/bot/message/#{event["message"]["id"]}/content"
    return call(Net::HTTP::Get, url).bytesize.to_s
  end
  url = "https://api.line.me/v2/bot/profile/#{event["source"]["userId"]}"
  "ruby #{JSON.parse(call(Net::HTTP::Get, url))["displayName"]}"
end

server = TCPServer.new("127.0.0.1", ENV.fetch("PORT").to_i)
loop do
  client = server.accept
  length = 0
  while (line = client.gets) && line != "\r\n"
    length = line.split[1].to_i if line.downcase.start_with?("content-length:")
  end
  JSON.parse(client.read(length))["events"].each do |event|
    messages = [{ type: "text", text: answer(event) }]
    reply = { replyToken: event["replyToken"], messages: messages }
    call(Net::HTTP::Post, "https://api.line.me/v2/bot/message/reply", reply.to_json)
  end
  client.write "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
  client.close
end
"""

PHP = r"""<?php
function call($url, $body = null) {
    $curl = curl_init($url);
    curl_setopt($curl, CURLOPT_RETURNTRANSFER, true);
    curl_setopt($curl, CURLOPT_HTTPHEADER, [
        'Authorization: Bearer ' . getenv('LINEBOT_CHANNEL_TOKEN'),
        'Content-Type: application/json',
    ]);
    if ($body !== null) curl_setopt($curl, CURLOPT_POSTFIELDS, json_encode($body));
    $answer = curl_exec($curl);
    if ($answer === false) throw new Exception(curl_error($curl));
    return $answer;
}
function answer($event) {
    if ($event['message']['type'] === 'image') {
        $id = $event['message']['id'];
        return strval(strlen(call("https://api-data.line.me/v2/bot/message/$id/content")));
    }
    $profile = call('https://api.line.me/v2/bot/profile/' . $event['source']['userId']);
    return 'php ' . json_decode($profile, true)['displayName'];
}
foreach (json_decode(file_get_contents('php://input'), true)['events'] as $event) {
    call('https://api.line.me/v2/bot/message/reply', [
        'replyToken' => $event['replyToken'],
        'messages' => [['type' => 'text', 'text' => answer($event)]],
    ]);
}
"""

JAVA = r"""
import com.sun.net.httpserver.HttpServer;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.net.URL;
import java.util.regex.*;
import javax.net.ssl.HttpsURLConnection;

public class Bot {
    static byte[] call(String url, String body) throws Exception {
        var line = (HttpsURLConnection) new URL(url).openConnection();
        var token = System.getenv("LINE_CHANNEL_ACCESS_TOKEN");
        line.setRequestProperty("Authorization", "Bearer " + token);
        line.setRequestProperty("Content-Type", "application/json");
        if (body != null) {
            line.setDoOutput(true);
            line.getOutputStream().write(body.getBytes("UTF-8"));
        }
        try (InputStream answer = line.getInputStream()) {
            return answer.readAllBytes();
        }
    }

    static String field(String json, String name) {
        Matcher found = Pattern.compile("\"" + name + "\": ?\"([^\"]*)\"").matcher(json);
        return found.find() ? found.group(1) : "";
    }

    static String answer(String event) throws Exception {
        if (event.contains("\"image\"")) {
            var message = event.substring(event.indexOf("\"message\":"));
            var path = "/v2/bot/message/" + field(message, "id") + "/content";
            var url = "https://api-data.line.me" + path;
            return "" + call(url, null).length;
        }
        var url = "https://api.line.me/v2/bot/profile/" + field(event, "userId");
        return "java " + field(new String(call(url, null), "UTF-8"), "displayName");
    }

    public static void main(String[] words) throws Exception {
        var port = Integer.parseInt(System.getenv("PORT"));
        var server = HttpServer.create(new InetSocketAddress("127.0.0.1", port), 0);
        server.createContext("/callback", exchange -> {
            var event = new String(exchange.getRequestBody().readAllBytes(), "UTF-8");
            try {
                if (event.contains("replyToken")) {
                    var message = "{\"type\": \"text\", \"text\": \"" + answer(event) + "\"}";
                    var reply = "{\"replyToken\": \"" + field(event, "replyToken")
                        + "\", \"messages\": [" + message + "]}";
                    call("https://api.line.me/v2/bot/message/reply", reply);
                }
                exchange.sendResponseHeaders(200, -1);
            } catch (Exception error) {
                error.printStackTrace();
                exchange.sendResponseHeaders(500, -1);
            }
        });
        server.start();
    }
}
"""


@pytest.mark.parametrize(
    ("program", "file", "bot", "words"),
    [
        ("go", "bot.go", GO, "run bot.go"),
        ("ruby", "bot.rb", RUBY, "bot.rb"),
        ("php", "index.php", PHP, "-S 127.0.0.1:{port} index.php"),
        ("javac", "Bot.java", JAVA, "Bot.java"),
    ],
    ids=["go", "ruby", "php", "java"],
)
async def test_a_bot_in_another_language(
    program: str, file: str, bot: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the profile and a picture, and replies, all over HTTPS to LINE's names."""
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"no {program} on the PATH")
    (tmp_path / file).write_text(bot)
    monkeypatch.chdir(tmp_path)
    command = [path.removesuffix("c") if program == "javac" else path]
    command += words.format(port=free_port()).split()
    async with running(*command) as line:
        ann = line.somebody("Ann")
        await line.say("hi", source=ann)
        await line.send_picture(source=ann)
        size = len(events.image().carried.data)  # pyright: ignore[reportOptionalMemberAccess]
        assert line.chat(ann).texts == [f"{program.removesuffix('c')} Ann", str(size)]
